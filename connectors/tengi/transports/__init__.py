"""What client, server and receiver share: packets over TCP, WebSocket and HTTP long polling, each with or without TLS.

================  ====================================================================================
`names`           transports by name, and why some are refused
`configuration`   `ConfigurationBuilder`; the switches for faults
`link`            one connection at the level of packets: pull events, send messages through a bounded queue
`streams`         a link over TCP or WebSocket, of either side; `frames`: RFC 6455 without a socket
`client_polling`  the client's link over HTTP long polling
`server_polling`  the server's link over HTTP long polling
`requests`        HTTP/1.1 without a socket; `exchanges`: over sockets, and the upgrade to WebSocket
`queues`          what is to be sent, and what no listener has had yet; both bounded
`dialing`         opens the client's link; `listening`: accepts the server's
`connection`      the API of client and server over a link: listeners, requests and their answers
================  ====================================================================================
"""
