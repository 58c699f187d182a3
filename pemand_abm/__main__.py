"""Run the command line with `python -m pemand_abm`."""

from pemand_abm.cli import main

main(prog_name="pemand")
