package gateway

// beneath returns the connection that a Tunnel gave, with its limits, below what reads it.
func beneath(conn Conn) Conn {
	for {
		switch wrapped := conn.(type) {
		case *webConn:
			conn = wrapped.Conn
		case *bufferedConn:
			conn = wrapped.Conn
		default:
			return conn
		}
	}
}

// ownerOf returns the command that has made a connection, for a record of something that
// began when the record says.
func (g *Gateway) ownerOf(conn Conn, r Record) string {
	conn = beneath(conn)
	if limited, ok := conn.(*meter); ok {
		conn = limited.Conn
	}
	return g.owner(conn, r.Time)
}
