//go:build linux

package network

import (
	"crypto/sha1" //nolint:gosec // the format has no other digest
	"encoding/binary"
	"encoding/pem"
	"strconv"
	"unicode/utf16"
)

// Parts of a Java KeyStore (JKS), as sun.security.provider.JavaKeyStore reads it.
const (
	javaMagic    = 0xfeedfeed
	javaVersion  = 2
	javaTrusted  = 2 // the tag of an entry that is a certificate alone
	javaType     = "X.509"
	javaSalt     = "Mighty Aphrodite"
	javaPassword = "changeit" // Java's own default; it protects nothing, and Java reads the file without it
)

// javaStore returns certificates in the form of a Java KeyStore. Every Java from 8 on reads it without being
// told its type or its password. The same certificates give the same bytes.
func javaStore(certificates []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, javaMagic)
	out = binary.BigEndian.AppendUint32(out, javaVersion)
	const countAt = 8
	out = binary.BigEndian.AppendUint32(out, 0) // the count, once it is known
	count := uint32(0)
	for block, rest := pem.Decode(certificates); block != nil; block, rest = pem.Decode(rest) {
		out = binary.BigEndian.AppendUint32(out, javaTrusted)
		out = javaText(out, "authority"+strconv.Itoa(int(count))) // aliases differ, in small letters
		out = binary.BigEndian.AppendUint64(out, 0)               // the time when it was added, which nothing asks for
		out = javaText(out, javaType)
		out = binary.BigEndian.AppendUint32(out, uint32(len(block.Bytes)))
		out = append(out, block.Bytes...)
		count++
	}
	binary.BigEndian.PutUint32(out[countAt:], count)
	digest := sha1.New() //nolint:gosec // as above
	for _, unit := range utf16.Encode([]rune(javaPassword)) {
		digest.Write(binary.BigEndian.AppendUint16(nil, unit))
	}
	digest.Write([]byte(javaSalt))
	digest.Write(out)
	return digest.Sum(out)
}

// javaText appends a text of ASCII behind its length.
func javaText(out []byte, text string) []byte {
	out = binary.BigEndian.AppendUint16(out, uint16(len(text)))
	return append(out, text...)
}
