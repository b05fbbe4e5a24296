"""Side-by-side measurements: `./dev bench`. See README.md beside this file."""
