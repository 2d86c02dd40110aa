"""Figures and claims: experiments on top of the library; they hold no algorithms."""
