"""One plain function a subcommand."""
