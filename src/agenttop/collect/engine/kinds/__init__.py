"""One engine, one module (or one package where it takes more): how it is recognised, asked and read."""
