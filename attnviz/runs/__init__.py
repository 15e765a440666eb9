"""What one command does from start to end."""
