package sandbox

import "testing"

func TestEnvName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"A": true, "_": true, "a1": true, "PATH_2": true, "zZ_09": true,
		"": false, "1A": false, "A-B": false, "A=B": false, "A B": false, "A\n": false, "Ä": false, "@": false, "[": false, "`": false, "{": false, "A\x00": false, "a.b": false,
	} {
		if got := EnvName(name); got != want {
			t.Errorf("EnvName(%q) = %t; want %t", name, got, want)
		}
	}
}
