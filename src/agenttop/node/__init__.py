"""The node: one per host. Samples, records, directs the driver, and outlives the console."""
