"""``python -m bai_services.agent``"""

from .app import main

main()
