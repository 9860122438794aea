"""Items of work that several processes and machines share through a folder."""
