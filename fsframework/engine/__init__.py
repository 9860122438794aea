"""One file a stage of the flow."""
