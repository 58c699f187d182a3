"""What ActivitySim's settings checker reads before a run starts."""

from pemand_extension.settings import FILE, PemandSettings

EXTENSION_CHECKER_SETTINGS = {
    step: {"settings_cls": PemandSettings, "settings_file": FILE}
    for step in ("pemand_relocation", "pemand_trip_targets")
}
