"""The parts of the live screen: pure functions from the store to lines of styled text."""
