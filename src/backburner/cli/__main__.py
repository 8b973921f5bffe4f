""""""

from . import main

main()
