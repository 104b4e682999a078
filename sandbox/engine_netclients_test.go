package sandbox_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// netClients are programs as people use them. They are told nothing of a proxy: each finds its server by
// name, in a session whose only interface is lo. $HTTP and $HTTPS are servers of this machine, and so are
// what $GRPC, $PGPORT and $SSHPORT name. The rows are those of docs/network.md.
var netClients = []netClient{
	{
		name: "curl", uses: "http, https", ca: []string{"CURL_CA_BUNDLE=/tmp/ca.pem"},
		script: `curl -sS $HTTP/hello && curl -sS $HTTPS/hello && curl -sS --http1.1 $HTTPS/hello`, want: hello + hello + hello,
		refused: `curl -sS $HTTP/hello; curl -sS $HTTPS/hello`, says: "blocked by sandbox policy|access denied",
	},
	{
		name: "wget", uses: "http, https", ca: []string{"WGETRC=/tmp/wgetrc"},
		script: `wget -q -O - $HTTP/hello && wget -q -O - $HTTPS/hello`, want: hello + hello,
		refused: `wget -nv -O - $HTTP/hello; wget -nv -O - $HTTPS/hello`, says: "(?i)blocked by sandbox policy|alert|access.denied",
	},
	{
		name: "git", uses: "clone over http and https, push over https", ca: []string{"GIT_SSL_CAINFO=/tmp/ca.pem"},
		script: `rm -rf r1 r2 && git clone -q $HTTP/git/repo.git r1 && git clone -q $HTTPS/git/repo.git r2 && cat r1/file r2/file &&
			cd r2 && echo more >more && git add more && git -c user.name=n -c user.email=n@example.com commit -qm two && git push -q origin HEAD:refs/heads/pushed-$RANDOM$RANDOM && echo pushed`,
		want: "a file in git\na file in git\npushed\n", refused: `git clone $HTTP/git/repo.git r3; git clone $HTTPS/git/repo.git r3`, says: "blocked by sandbox policy|fatal:.*(403|alert|access.denied|(?i)tls)",
	},
	{
		name: "Go", uses: "`go mod download`", ca: []string{"SSL_CERT_FILE=/tmp/ca.pem"},
		script: goModule + `go mod download -json tiny.test/tiny@v1.0.0`, want: `"Version": "v1.0.0"`,
		refused: goModule + `go mod download tiny.test/tiny@v1.0.0`, says: "tls:|blocked by sandbox policy",
	},
	{
		name: "openssl", uses: "s_client", ca: []string{"SSL_CERT_FILE=/tmp/ca.pem"},
		script: `at=${HTTPS#https://}; printf 'GET /hello HTTP/1.0\r\nHost: '$at'\r\n\r\n' | openssl s_client -quiet -verify_return_error -connect $at -servername ${at%:*} 2>/dev/null`, want: hello,
		refused: `at=${HTTPS#https://}; openssl s_client -quiet -connect $at -servername ${at%:*} </dev/null`, says: "access denied|blocked",
	},
	{
		name: "bash", uses: "/dev/tcp",
		script: `at=${HTTP#http://}; exec 3<>/dev/tcp/${at%:*}/${at#*:}; printf 'GET /hello HTTP/1.0\r\nHost: '$at'\r\n\r\n' >&3; cat <&3`, want: hello,
		refused: `exec 3<>/dev/tcp/refused.test/5432`, says: "refused",
	},
	{
		name: "perl", uses: "HTTP::Tiny",
		script: `perl -MHTTP::Tiny -e 'print HTTP::Tiny->new->get("$ENV{HTTP}/hello")->{content}'`, want: hello,
		refused: `perl -MHTTP::Tiny -e '$r = HTTP::Tiny->new->get("$ENV{HTTP}/hello"); print "$r->{status} $r->{reason}\n"'`, says: "blocked by sandbox policy",
	},
	{
		name: "Python, urllib", uses: "http, https", ca: []string{"SSL_CERT_FILE=/tmp/ca.pem"},
		script: `python3 -c '` + urllib + `
get("HTTP"); get("HTTPS")'`, want: hello + hello,
		refused: `python3 -c '` + urllib + `
get("HTTP")'; python3 -c '` + urllib + `
get("HTTPS")'`, says: "blocked by sandbox policy|ACCESS_DENIED|access denied",
	},
	{
		name: "Python, http.client", uses: "https", ca: []string{"SSL_CERT_FILE=/tmp/ca.pem"},
		script: `python3 -c '` + httpClient + `'`, want: hello, refused: `python3 -c '` + httpClient + `'`, says: "ACCESS_DENIED|access denied|blocked by sandbox policy",
	},
	{
		name: "getent", uses: "names", script: `getent hosts web.test`, want: "127.",
		refused: `getent hosts nothing.local || echo no such name`, says: "no such name",
	},
	{
		name: "Python, requests", lane: true, uses: "http, https", ca: []string{"REQUESTS_CA_BUNDLE=/tmp/ca.pem"},
		script: `python3 -c '` + requests + `
get("HTTP"); get("HTTPS")'`, want: hello + hello,
		refused: `python3 -c '` + requests + `
get("HTTP")'; python3 -c '` + requests + `
get("HTTPS")'`, says: "blocked by sandbox policy|ACCESS_DENIED|access denied",
	},
	{
		name: "pip", lane: true, uses: "install of a wheel", ca: []string{"PIP_CERT=/tmp/ca.pem"},
		script: pip + ` && PYTHONPATH=p python3 -c 'import tiny; print(tiny.text)'`, want: "a package of Python", refused: pip, says: "ERROR|ACCESS_DENIED|access denied|blocked",
	},
	{
		name: "Node", lane: true, uses: "fetch, https", ca: []string{"NODE_EXTRA_CA_CERTS=/tmp/ca.pem"},
		script: `node -e '` + node + `'`, want: hello + hello, refused: `node -e '` + node + `'`, says: "access denied|blocked|alert",
	},
	{
		name: "npm", lane: true, uses: "install", ca: []string{"NPM_CONFIG_CAFILE=/tmp/ca.pem"},
		script: npm + ` && node -e 'console.log(require("./n/node_modules/tiny").text)'`, want: "a package of npm", refused: npm, says: "(?i)npm err.*(access denied|blocked|alert)",
	},
	{
		name: "Java", lane: true, uses: "HttpClient, http and https", ca: []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/tmp/ca.p12 -Djavax.net.ssl.trustStorePassword=changeit"},
		script: `java Get.java $HTTP/hello $HTTPS/hello`, want: hello + hello, refused: `java Get.java $HTTPS/hello`, says: "access_denied|blocked|PKIX",
	},
	{
		name: "cargo", lane: true, uses: "fetch over a sparse index", ca: []string{"CARGO_HTTP_CAINFO=/tmp/ca.pem"},
		script: cargo + ` && ls $CARGO_HOME/registry/cache/*`, want: "tiny-1.0.0.crate", refused: cargo, says: "(?i)blocked|alert|access denied|\\[35\\]",
	},
	{
		name: "apt", lane: true, uses: "update, download", ca: []string{"APT_CONFIG=/tmp/apt.conf"},
		script: apt + `$apt update && $apt download tiny && dpkg-deb -f tiny_1.0.0_all.deb Version`, want: "1.0.0",
		refused: apt + `$apt update`, says: "^Err:|alert|blocked|access denied",
	},
	{
		name: "psql", lane: true, uses: "a query", script: `psql -h web.test -p $PGPORT -U agent -d postgres -Atc 'select 6*7'`, want: "42\n",
		refused: `psql -h refused.test -p 5432 -U agent -c 'select 1'`, says: "(?i)refused",
	},
	{
		name: "ssh", lane: true, uses: "a command", script: ssh + ` -p $SSHPORT agent@web.test cat greeting`, want: "hello over ssh", refused: ssh + ` agent@refused.test true`, says: "refused",
	},
	{
		name: "git over ssh", lane: true, uses: "clone, push",
		script: `export GIT_SSH_COMMAND="` + ssh + `"; rm -rf r4 && git clone -q ssh://agent@web.test:$SSHPORT/home/agent/repo.git r4 && cat r4/file && cd r4 &&
			echo more >more-$$ && git add . && git -c user.name=n -c user.email=n@example.com commit -qm two && git push -q && git fetch && git status -sb`,
		want: "a file in git\n## main...origin/main\n", refused: `GIT_SSH_COMMAND="` + ssh + `" git clone ssh://agent@refused.test/home/agent/repo.git r5`, says: "refused",
	},
	{
		name: "gRPC", lane: true, uses: "unary, server stream, error in the trailers", ca: []string{"SSL_CERT_FILE=/tmp/ca.pem"},
		script: `./grpc $GRPC`, want: "unary SERVING\nstream NOT_SERVING\nstream SERVING\ntrailers NotFound\n", refused: `./grpc refused.test:443`, says: "tls:|blocked",
	},
}

type netClient struct {
	name    string
	lane    bool   // it needs the image of make clients
	uses    string // what is tried, for the page
	script  string
	want    string // in the output of script
	refused string // a script that wants what no rule allows: $HTTP and $HTTPS are other names
	says    string // a regular expression of the lines of the output that say so
	// ca are the variables that have the client trust $HTTPS. Where requests are intercepted, a
	// session has such variables by itself.
	ca []string
}

const (
	hello    = "hello from here\n"
	goModule = `rm -rf g && mkdir g && cd g && go mod init x.test/x 2>/dev/null
		export GOPROXY=$HTTPS/go GONOSUMDB=* GOFLAGS=-mod=mod GOCACHE=/tmp/gc GOMODCACHE=$PWD/gm GOTOOLCHAIN=local GOFLAGS=-modcacherw
		`
	urllib = `import os, urllib.request
def get(name): print(urllib.request.urlopen(os.environ[name] + "/hello").read().decode(), end="")`
	httpClient = `import http.client, os
c = http.client.HTTPSConnection(os.environ["HTTPS"].removeprefix("https://"))
c.request("GET", "/hello")
print(c.getresponse().read().decode(), end="")`
	requests = `import os, requests
def get(name): r = requests.get(os.environ[name] + "/hello"); print(r.text, end="")`
	pip  = `rm -rf p && python3 -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 --target p --index-url $HTTPS/simple/ tiny`
	node = `const https = require("https"), url = process.env.HTTPS + "/hello";
(async () => {
	try { process.stdout.write(await (await fetch(url)).text()); } catch (e) { console.log(String(e.cause || e)); }
	https.get(url, r => r.pipe(process.stdout)).on("error", e => console.log(String(e)));
})()`
	npm   = `rm -rf n && mkdir n && npm install --prefix n --cache /tmp/npm-cache --no-audit --no-fund --no-update-notifier --fetch-retries 0 --registry $HTTPS/npm/ tiny`
	cargo = `rm -rf c && mkdir -p c/src c/.cargo && cd c && echo 'fn main() {}' >src/main.rs
		printf '[package]\nname = "x"\nversion = "1.0.0"\n[dependencies]\ntiny = { version = "1", registry = "here" }\n' >Cargo.toml
		printf '[registries.here]\nindex = "sparse+%s/cargo/"\n[net]\nretry = 0\n' $HTTPS >.cargo/config.toml
		export CARGO_HOME=$PWD/home RUSTC_BOOTSTRAP=1 # Debian 12 has a cargo that calls this unstable
		cargo -Z sparse-registry fetch`
	apt = `rm -rf a && mkdir -p a/lists/partial a/cache/archives/partial a/log && cd a && : >status && echo "deb [trusted=yes] $HTTPS apt/" >sources.list
		apt="apt-get -o Dir::State=$PWD -o Dir::State::status=$PWD/status -o Dir::Cache=$PWD/cache -o Dir::Log=$PWD/log -o Dir::Etc::sourcelist=$PWD/sources.list -o Dir::Etc::sourceparts=-"
		`
	ssh = `ssh -i /tmp/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR`
)

var (
	// clientsLane has TestNetworkClients run every client, in an image that has them all: make clients sets it.
	clientsLane   = os.Getenv("SANDBOXBASH_TEST_CLIENTS") == "all"
	updateClients = flag.Bool("update-clients", false, "write the tables of clients into docs/network.md (with make clients)")
)

// TestNetworkClients runs the clients that every image of this machine has, or all of them.
func TestNetworkClients(t *testing.T) { //nolint:tparallel // they share a session, whose commands run one after the other
	t.Parallel()
	at := startNetServers(t)
	client := dockertest.Connect(t)
	spec := sandbox.Spec{Allow: rules(t, at.allow...), User: &sandbox.User{UID: 1000, GID: 1000}}
	goroot := goRoot(t)
	spec.Workspace = sandbox.Workspace{Kind: sandbox.WorkspaceBind, Dir: goroot, Target: goroot, ReadOnly: true} // for its programs
	if clientsLane {
		spec.Image = clientsImage(t)
		at.addReal(t, spec.Image)
		spec.Allow = rules(t, at.allow...)
	}
	e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"web.test", "example.com"}, Roots: at.roots})
	s := startIn(t, client, e, spec)
	at.prepare(t, s)
	spec.Allow = rules(t, at.read...)
	read := startIn(t, client, e, spec)
	at.prepare(t, read)
	env := slices.Concat(at.env, []string{"PATH=" + filepath.Join(goroot, "bin") + ":/usr/local/bin:/usr/bin:/bin"})
	page := clientsPage{says: map[string]string{}, read: map[string]string{}}
	for _, c := range netClients {
		if c.lane && !clientsLane {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			res, err := s.Run(t.Context(), sandbox.Command{Script: c.script, Env: slices.Concat(env, c.ca), Dir: "/tmp", Timeout: 2 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if got := res.Output.Stdout.Text(); res.Code != 0 || !strings.Contains(got, c.want) {
				t.Errorf("%s\nexit code %d, output %q, errors %q; want %q", c.script, res.Code, got, res.Output.Stderr.Text(), c.want)
			}
			page.says[c.name] = refusal(t, s, c, env)
			page.read[c.name] = intercepted(t, read, c, env)
		})
	}
	if clientsLane && !t.Failed() {
		page.check(t)
	}
}

// intercepted has a client use a server whose requests are read, and returns what that takes, for the page. The
// client is not told whom to trust: the server's own certificate it cannot verify, so that what works comes of the
// session's authority.
func intercepted(t *testing.T, s *sandbox.Session, c netClient, env []string) string {
	t.Helper()
	if len(c.ca) == 0 {
		return "no TLS"
	}
	_, from, _ := s.ConnectionsAfter(0)
	res, err := s.Run(t.Context(), sandbox.Command{Script: c.script, Env: env, Dir: "/tmp", Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Output.Stdout.Text(); res.Code != 0 || !strings.Contains(got, c.want) {
		t.Errorf("%s\nwhere requests are read: exit code %d, output %q, errors %q; want %q", c.script, res.Code, got, res.Output.Stderr.Text(), c.want)
		return ""
	}
	over, _, _ := s.ConnectionsAfter(from)
	if !slices.ContainsFunc(over, func(r sandbox.Connection) bool { return r.Host == "example.com" && r.Method != "" }) {
		t.Errorf("%s\nno request inside TLS was read: %+v", c.script, over)
	}
	return "works"
}

// refusal has a client want what no rule allows, and returns what the client says of it.
func refusal(t *testing.T, s *sandbox.Session, c netClient, env []string) string {
	t.Helper()
	env = slices.Concat(env, c.ca, []string{"HTTP=http://refused.test:80", "HTTPS=https://refused.test:443"})
	res, err := s.Run(t.Context(), sandbox.Command{Script: "{\n" + c.refused + "\n} 2>&1", Env: env, Dir: "/tmp", Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	says, out := regexp.MustCompile(c.says), res.Output.Stdout.Text()
	var lines []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); says.MatchString(line) && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		t.Errorf("%s\nwhere nothing allows it, the output is %q; want a line with %s", c.refused, out, c.says)
	}
	const most = 2 // lines on the page
	return strings.Join(lines[:min(len(lines), most)], "\n")
}

func goRoot(t *testing.T) string {
	t.Helper()
	out, err := osexec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// clientsImage makes the image that has all clients, unless it is there.
func clientsImage(t *testing.T) string {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), "testdata/clients/image.sh")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the image of the clients: %v\n%s", err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// netServers are the servers of this machine that the clients are for.
type netServers struct {
	allow []string // rules for them
	read  []string // the same for some requests, which have to be read
	env   []string // where they are
	files map[string][]byte
	roots *x509.CertPool // that the gateway verifies them with
}

func startNetServers(t *testing.T) *netServers {
	t.Helper()
	web := webServer(t)
	plain, secure := httptest.NewServer(web), httptest.NewUnstartedServer(web)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	at := &netServers{roots: roots, files: map[string][]byte{
		"ca.pem":   ca,
		"wgetrc":   []byte("ca_certificate = /tmp/ca.pem\n"),
		"apt.conf": []byte("Acquire::https::CAInfo \"/tmp/ca.pem\";\n"),
		"Get.java": []byte(getJava),
	}}
	// httptest's certificate is for example.com.
	at.env = append(at.env, "HTTP=http://web.test:"+at.port(plain.Listener.Addr()), "HTTPS=https://example.com:"+at.port(secure.Listener.Addr()))
	if clientsLane {
		at.env = append(at.env, "GRPC=example.com:"+at.port(grpcServer(t, secure.TLS.Certificates[0])))
		at.files["grpc"] = grpcClient(t)
	}
	return at
}

// port allows a server of this machine by its names, and returns its port.
func (at *netServers) port(addr net.Addr) string {
	port := netip.MustParseAddrPort(addr.String()).Port()
	own := fmt.Sprintf("127.0.0.1:%d", port)
	at.allow = append(at.allow, own, fmt.Sprintf("example.com:%d", port), fmt.Sprintf("web.test:%d", port))
	at.read = append(at.read, own, fmt.Sprintf("GET,HEAD,POST example.com:%d/*", port), fmt.Sprintf("GET,HEAD,POST web.test:%d/*", port))
	return fmt.Sprint(port)
}

// prepare brings the files into a session.
func (at *netServers) prepare(t *testing.T, s *sandbox.Session) {
	t.Helper()
	for name, content := range at.files {
		run(t, s, sandbox.Command{Script: fmt.Sprintf("umask 77; cat >/tmp/%s; chmod 700 /tmp/%[1]s", name), Stdin: bytes.NewReader(content)})
	}
	if clientsLane { // Java's form of the certificate
		run(t, s, sandbox.Command{Script: "keytool -importcert -noprompt -alias here -file /tmp/ca.pem -keystore /tmp/ca.p12 -storetype PKCS12 -storepass changeit 2>&1", Timeout: 2 * time.Minute})
	}
}

const getJava = `import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

public class Get {
	public static void main(String[] urls) throws Exception {
		HttpClient client = HttpClient.newHttpClient();
		for (String url : urls) {
			System.out.print(client.send(HttpRequest.newBuilder(URI.create(url)).build(), BodyHandlers.ofString()).body());
		}
	}
}
`
