// Loaded into configurable-http-proxy by `node --require` (see hub_proxy.py).
//
// If a server closes its connection in the middle of a response, http-proxy-3 leaves the client's
// connection open, and the client waits for the rest of the response until its own time limit.
// Streams of answers end in this way when their token is revoked or their replica is lost.
'use strict';

const { IncomingMessage, ServerResponse } = require('node:http');

const { pipe } = IncomingMessage.prototype;

IncomingMessage.prototype.pipe = function (target, options) {
  if (target instanceof ServerResponse) {
    this.once('close', () => {
      if (!this.complete) {
        // Send what has arrived, then close the connection without the end of the response.
        const { socket } = target;
        if (socket) {
          socket.destroySoon();
        } else {
          target.destroy();
        }
      }
    });
  }
  return pipe.call(this, target, options);
};
