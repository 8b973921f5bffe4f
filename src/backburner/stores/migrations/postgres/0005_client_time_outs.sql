-- What clients' clocks taught: each time-out of a held call, the last few of each client.

CREATE TABLE client_time_outs (
    name      TEXT NOT NULL,
    version   TEXT NOT NULL,
    transport TEXT NOT NULL,
    seen_at   BIGINT NOT NULL,
    waited_ms BIGINT NOT NULL,
    silent_ms BIGINT NOT NULL,
    PRIMARY KEY (name, version, transport, seen_at)
);
