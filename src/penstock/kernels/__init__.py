"""The algorithms: NumPy, Arrow and Numba; no Spark, no clock, no global randomness."""
