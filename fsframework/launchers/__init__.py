"""What launchers have in common."""
