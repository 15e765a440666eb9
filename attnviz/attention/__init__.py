"""From a backbone and prepared pictures to raw attention maps."""
