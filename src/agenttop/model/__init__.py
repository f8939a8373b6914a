"""What the words mean: frames, commands, units, clock. Imports nothing of ours."""
