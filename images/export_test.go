package images

// MakerOf is whose the snapshots are that r makes.
func MakerOf(r *Resolver) string { return r.maker() }
