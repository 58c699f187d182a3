"""An extension of ActivitySim: `activitysim run ... -e pemand_extension` knows its two steps.

`pemand_relocation` takes the completed moves of a run of pemand-abm into `home_zone_id`;
`pemand_trip_targets` adds the households' trips as columns. The package imports nothing of
`pemand_abm`, which needs a newer pandas than ActivitySim allows. docs/howto-activitysim.md.
"""

from importlib.util import find_spec

# The parts that know no ActivitySim can be imported, and tested, where there is none.
if find_spec("activitysim"):
    from pemand_extension import steps  # noqa: F401
