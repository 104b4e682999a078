package wire

// Limits of a session, as the Path of a NoRoom: no file system is called so, because paths are absolute.
const (
	RoomPids   = "pids"   // the kernel refused a new process or thread while the command ran
	RoomMemory = "memory" // the kernel killed a process at the memory limit while the command ran
)

// NoRoom is a file system that took nothing more when a command failed, or a limit of the session that was met
// while it ran.
type NoRoom struct {
	Path  string // where it is mounted; or RoomPids, RoomMemory, and then the other fields are zero
	Files bool   // no file could be made; else no byte could be written
	Size  uint64 // bytes, or files
}

// maxNoRoom bounds how many a message names, so that the record of a job has room
// for them.
const maxNoRoom = 8

func (n *NoRoom) fields(c *codec) {
	c.string(&n.Path)
	c.bool(&n.Files)
	c.uint(&n.Size)
}

// rooms visits the first maxNoRoom file systems of a list.
func rooms(c *codec, all *[]NoRoom) {
	list := (*all)[:min(len(*all), maxNoRoom)]
	n := uint64(len(list))
	c.uint(&n)
	if c.reading {
		if list = nil; n > maxNoRoom {
			c.fail("too many full file systems")
		} else if n > 0 {
			list = make([]NoRoom, n)
		}
		*all = list
	}
	for i := range list {
		list[i].fields(c)
	}
}
