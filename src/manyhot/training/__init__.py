"""Examples to a trained model: settings, input preparation, bodies, the loop, checkpoints and the bundle that is saved."""
