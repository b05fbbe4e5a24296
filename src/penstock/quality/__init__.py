"""How good an approximate answer is: measures of likeness, and yardsticks that no online policy can beat."""
