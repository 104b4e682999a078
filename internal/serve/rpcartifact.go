package serve

import "context"

type artifactList struct {
	Artifacts []ArtifactInfo `json:"artifacts"`
}

func (p *peer) artifacts(ctx context.Context, session string) (Artifacts, error) {
	s, err := p.session(ctx, session)
	if err != nil {
		return nil, err
	}
	return part(s.Artifacts, "artifacts: none are kept here")
}

func doArtifactList(ctx context.Context, p *peer, n named) (any, error) {
	store, err := p.artifacts(ctx, n.Session)
	if err != nil {
		return nil, err
	}
	all, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []ArtifactInfo{}
	}
	return artifactList{all}, nil
}

type artifactPart struct {
	Session string `json:"session"`
	ID      string `json:"id"`
	Offset  int64  `json:"offset"`
	Limit   int64  `json:"limit"`
}

type artifactContent struct {
	fileContent
	Size int64 `json:"size"` // of all of it, so far
}

func doArtifactRead(ctx context.Context, p *peer, a artifactPart) (any, error) {
	from, most, err := clampPart(a.Offset, a.Limit)
	if err != nil {
		return nil, err
	}
	if !decimal(a.ID) {
		return nil, failure(KindUnknownArtifact, "artifact ids are numbers, got %s", shown(a.ID))
	}
	store, err := p.artifacts(ctx, a.Session)
	if err != nil {
		return nil, err
	}
	data, size, err := store.Read(ctx, a.ID, from, most)
	if err != nil {
		return nil, err
	}
	c := artifactContent{newContent(data), size}
	c.End = from+int64(len(data)) >= size
	return c, nil
}

// decimal reports whether an id can be that of an artifact. It becomes part of a path.
func decimal(id string) bool {
	for _, r := range id {
		if r < '0' || r > '9' {
			return false
		}
	}
	return id != "" && len(id) <= 18
}
