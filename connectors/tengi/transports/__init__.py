"""What client, server and receiver share: packets over TCP, WebSocket and HTTP long polling, each with or without TLS.

===============  =====================================================================================
`names`          transports by name, and why some are refused
`configuration`  `ConfigurationBuilder`; the switches for faults
`link`           one connection at the level of packets: pull events, send messages through a bounded queue
`streams`        a link over TCP or WebSocket; `frames`: RFC 6455 without a socket
`queues`         what is to be sent, and what listeners have not had yet
`polling`        the client's link over HTTP; `polled`: the server's; `requests`: HTTP/1.1 without a socket
`exchanges`      HTTP over sockets, and the upgrade to WebSocket
`dialing`        opens the client's link; `listening`: accepts the server's
`connection`     the API of both sides over a link: listeners, requests and their answers
===============  =====================================================================================
"""
