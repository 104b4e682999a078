package policy

import (
	"regexp"
	"strings"
	"sync"
)

// remoteRules are the rules about commands that run, or destroy data, on other machines and
// in containers, by the command's name.
var remoteRules = map[string]func(call){
	"docker": ruleContainers, "podman": ruleContainers, "nerdctl": ruleContainers,
	"docker-compose": ruleCompose, "podman-compose": ruleCompose,
	"kubectl": ruleKubectl, "oc": ruleKubectl,
	"gh": ruleGh, "glab": ruleGh, "hub": ruleGh,
	"aws": ruleAws, "gcloud": ruleCloud, "az": ruleCloud, "gsutil": ruleCloud, "s3cmd": ruleCloud, "rclone": ruleCloud, "mc": ruleCloud,
	"doctl": ruleCloud, "heroku": ruleCloud, "fly": ruleCloud, "flyctl": ruleCloud, "vercel": ruleCloud, "supabase": ruleCloud,
	"helm": ruleCloud, "terraform": ruleCloud, "tofu": ruleCloud, "pulumi": ruleCloud,
	"psql": ruleSQL, "mysql": ruleSQL, "mariadb": ruleSQL, "sqlite3": ruleSQL, "sqlcmd": ruleSQL, "cockroach": ruleSQL, "clickhouse-client": ruleSQL,
	"mongo": ruleSQL, "mongosh": ruleSQL, "redis-cli": ruleSQL, "duckdb": ruleSQL, "bq": ruleSQL,
	"dropdb": ruleDropped, "dropuser": ruleDropped, "mysqladmin": ruleSQL,
	"curl": ruleCurl,
}

// plainWords returns the literal words of a command that are not options.
func plainWords(args []arg) []string {
	var out []string
	for _, a := range args[1:] {
		if text, ok := a.literal(); ok && !strings.HasPrefix(text, "-") {
			out = append(out, text)
		}
	}
	return out
}

// firstOf returns the first wanted word among the first n, or "".
func firstOf(found []string, n int, wanted map[string]bool) string {
	for _, text := range found[:min(n, len(found))] {
		if wanted[text] {
			return text
		}
	}
	return ""
}

var (
	containerRuns = set("run exec start create attach cp commit kill rm rmi stop restart")
	kubeRuns      = set("exec run attach debug cp port-forward proxy")
	kubeDeletes   = set("delete drain replace")
	cloudDeletes  = set(`rm rb delete destroy del mb-delete remove purge uninstall deletefile sync-delete terminate wipe rmdir cleanup apps:destroy
 pg:reset ssh exec`)
)

// containerGroups maps docker's groups of commands to the commands in them that run
// something in a container, or that end or remove things.
var containerGroups = map[string]map[string]bool{
	"container": set("run exec start create attach cp commit kill rm stop restart prune"),
	"service":   set("create update rm scale rollback"), "stack": set("deploy up rm down remove"), "swarm": set("init join leave update"),
	"system": set("prune"), "image": set("rm prune"), "volume": set("rm prune"), "network": set("rm prune"), "builder": set("prune"),
	"buildx": nil, "checkpoint": nil, "config": nil, "context": nil, "manifest": nil, "node": nil, "plugin": nil, "secret": nil, "trust": nil,
}

func ruleContainers(c call) {
	found := plainWords(c.args)
	if len(found) > 0 && found[0] == "compose" {
		ruleCompose(c)
		return
	}
	for i, text := range found[:min(2, len(found))] { // the first may be the value of an option
		group, is := containerGroups[text]
		if is && i+1 < len(found) && group[found[i+1]] || !is && containerRuns[text] {
			c.refuse(setExec+"/remote", c.args[0].text+" "+text)
		}
		if is {
			return
		}
	}
}

func ruleCompose(c call) {
	if text := firstOf(plainWords(c.args), 3, set("run exec down rm kill")); text != "" {
		c.refuse(setExec+"/remote", c.args[0].text+" compose "+text)
	}
}

func ruleKubectl(c call) {
	found := plainWords(c.args)
	if text := firstOf(found, 3, kubeRuns); text != "" {
		c.refuse(setExec+"/remote", c.args[0].text+" "+text)
	}
	if text := firstOf(found, 3, kubeDeletes); text != "" {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+text)
	}
}

func ruleGh(c call) {
	found := plainWords(c.args)
	if text := firstOf(found, 2, set("delete delete-asset archive")); text != "" {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+text)
	}
	if firstOf(found, 1, set("api")) == "" {
		return
	}
	g := grammar{short: "f:F:H:iX:q:p:t:", long: "method= field= raw-field= header= input= jq= template= cache= hostname= preview="}
	g.optionValues(c.args, "X method", func(name string, v arg) {
		if strings.EqualFold(v.text, "DELETE") {
			c.refuse(setDisk+"/remote", c.args[0].text+" api -"+name+" DELETE")
		}
	})
}

func ruleAws(c call) {
	for _, text := range plainWords(c.args) {
		if strings.HasPrefix(text, "delete-") || strings.HasPrefix(text, "terminate-") || strings.HasPrefix(text, "remove-") || strings.HasPrefix(text, "deregister-") {
			c.refuse(setDisk+"/remote", "aws "+text)
		}
	}
	for _, a := range c.args {
		if a.is("--delete") {
			c.refuse(setDisk+"/remote", "aws … --delete")
		}
	}
	ruleCloud(c)
}

func ruleCloud(c call) {
	if text := firstOf(plainWords(c.args), 5, cloudDeletes); text != "" {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+text)
	}
}

// dropsData matches SQL and similar languages that destroy data.
var dropsData = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(drop\s+(table|database|schema|view|index|user|role|owned|column)|drop\b|truncate\b|delete\s+from|flushall|flushdb|dropDatabase|deleteMany|\.drop\(|\.remove\(|alter\s+table\s+\S+\s+drop)`)
})

func ruleSQL(c call) {
	for _, a := range c.args[1:] {
		if dropsData().MatchString(a.text) {
			c.refuse(setDisk+"/remote", c.args[0].text+" "+quote(a.text))
			return
		}
	}
	if !c.in.set {
		return
	}
	if text := c.read(c.in).text; dropsData().MatchString(text) {
		c.refuse(setDisk+"/remote", c.args[0].text+" "+quote(text))
	}
}

func ruleDropped(c call) {
	c.refuse(setDisk+"/remote", quote(joined(c.args).text))
}

// curlGrammar has the options of curl that take a value, as far as they have a letter.
var curlGrammar = grammar{
	short: "#0123469aBfgGiIjJklLMnNOpqRsSvVZA:b:c:C:d:D:e:E:F:h?H:K:m:o:P:Q:r:t:T:u:U:w:x:X:y:Y:z:",
	long: "request= request-target= url= data= data-raw= data-binary= data-urlencode= json= form= header= output= user= user-agent= proxy= cookie= cookie-jar= referer= max-time=" +
		" connect-timeout= retry= write-out= upload-file= cacert= cert= key= resolve= config= range=",
}

func ruleCurl(c call) {
	curlGrammar.optionValues(c.args, "X request", func(name string, v arg) {
		if strings.EqualFold(v.text, "DELETE") {
			c.refuse(setDisk+"/remote", "curl -"+name+" DELETE")
		}
	})
}
