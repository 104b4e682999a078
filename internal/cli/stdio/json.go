package stdio

import (
	"bytes"
	"encoding/json"
	"io"
)

// PrintJSON writes one document, on one line, with the secrets in its texts masked
// where w masks any.
func PrintJSON(w io.Writer, v any) error {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	if m, ok := w.(*Masked); ok {
		return m.writeJSON(doc.Bytes())
	}
	_, err := Raw(w).Write(inertJSON(doc.Bytes()))
	return err
}

// inertJSON makes a document one that holds nothing that a CI runner takes for a
// command, whatever is in it: those of GitHub begin a line or have ## in them, as have
// those of Azure and TeamCity, and one # is written as \u0023; those of GitLab have
// control characters.
func inertJSON(doc []byte) []byte {
	// Only within texts: a number has no #, and no escape ends with one.
	return bytes.ReplaceAll(doc, []byte("##"), []byte(`#\u0023`))
}
