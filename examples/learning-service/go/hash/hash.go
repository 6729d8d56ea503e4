// Package hash is SHA-256 of files and texts.
package hash

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
)

// add is one part, after its length: no two lists of parts have the same input.
func add(input []byte, part []byte) []byte {
	input = binary.LittleEndian.AppendUint64(input, uint64(len(part)))
	return append(input, part...)
}

// Texts is the hash of texts in an order.
func Texts(texts ...string) [sha256.Size]byte {
	var input []byte
	for _, text := range texts {
		input = add(input, []byte(text))
	}
	return sha256.Sum256(input)
}

// Seed is the first 63 bits of Texts, which the database can store as an integer.
func Seed(texts ...string) uint64 {
	digest := Texts(texts...)
	return binary.LittleEndian.Uint64(digest[:]) >> 1
}

// Files is the hash of the names and contents of files, in hexadecimal digits. NotFound: one of them is missing.
func Files(paths ...string) (string, error) {
	hash := sha256.New()
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fault.New(fault.NotFound, "there is no %s", path)
		} else if err != nil {
			return "", fault.IO(err)
		}
		hash.Write(add(add(nil, []byte(filepath.Base(path))), content))
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// Adapter is the hash of the two files of an adapter. Temporary files that a killed process has left beside
// them do not count.
func Adapter(directory string) (string, error) {
	return Files(filepath.Join(directory, "adapter_config.json"), filepath.Join(directory, "adapter_model.safetensors"))
}
