"""The reference designs: each a short file that anyone can copy."""
