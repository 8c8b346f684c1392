"""What a pipeline keeps under its state_dir."""
