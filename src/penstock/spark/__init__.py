"""The only folder that imports pyspark: session, slots, the processor that hosts kernels, sinks, listener."""
