"""pemand-abm: zone-level travel and relocation demand from households whose members negotiate."""

__version__ = "0.1.0"
