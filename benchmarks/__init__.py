"""Speed and memory, as ratios to the model's plain forward pass in the same run."""
