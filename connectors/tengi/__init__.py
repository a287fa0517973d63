"""tengi: typed objects over TCP, WebSocket or HTTP long polling, and a change feed in them."""
