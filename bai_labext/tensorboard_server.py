"""TensorBoard on a Unix socket: ``python -m bai_labext.tensorboard_server --host unix://PATH``.

TensorBoard itself listens on TCP only, where other users of the host could reach it.
"""

from __future__ import annotations

import sys
from typing import Any

from absl import app
from tensorboard import default, main_lib, program


class UnixSocketServer(program.WerkzeugServer):
    """TensorBoard's server; Werkzeug, its base, can listen at ``unix://`` addresses."""

    def get_url(self) -> str:
        # The method of the base class appends a port to the host.
        return str(self._flags.host)


class UnixSocketTensorBoard(program.TensorBoard):
    """TensorBoard that does not register itself for ``%tensorboard``.

    A registration must contain a TCP port, and this server has none.
    """

    def _register_info(self, server: Any) -> None:
        pass


def main() -> None:
    main_lib.global_init()
    tensorboard = UnixSocketTensorBoard(
        plugins=default.get_plugins(), server_class=UnixSocketServer
    )
    app.run(tensorboard.main, argv=sys.argv, flags_parser=tensorboard.configure)


if __name__ == "__main__":
    main()
