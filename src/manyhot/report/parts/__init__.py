"""The parts that all report pages share."""
