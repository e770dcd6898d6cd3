"""The five models as sketches on the real kernel: proof that its shape carries them. See decision 0001."""
