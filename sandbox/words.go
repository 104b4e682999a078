package sandbox

import "strings"

// The words of made-up names: short, plain, and none that could offend.
var (
	adjectives = strings.Fields(`
amber ample azure bold brave breezy bright brisk broad bronze calm candid careful cheerful
clean clear clever coral cosy crisp curious dapper daring deep eager early easy even fair
fancy fast fine firm fleet fresh gentle glad golden grand green handy happy hardy honest
humble jolly keen kind large light lively loyal lucky mellow merry mild modest neat nimble
noble olive open patient plain polite prime proud quick quiet rapid ready rosy round royal
ruby sandy sharp shiny silent silver simple smart smooth snappy soft solid spry steady stout
sturdy sunny swift tall teal tidy tranquil trusty vivid warm wise witty young zesty`)

	nouns = strings.Fields(`
acorn anchor apple arch badger bamboo basin beacon beech birch bison brook canyon cedar
cherry cliff clover comet copper crane creek cricket dahlia daisy delta dolphin dune eagle
elm ember falcon fern field finch fjord forest fox garnet glacier grove gull harbor hazel
heron hill ibis iris island ivy jasper juniper kestrel lagoon lake lantern larch lark laurel
lemon lily linden lotus lynx maple marble marlin meadow mesa moss oak ocean orchid osprey
otter owl panda pebble pepper pine plum pond poplar prairie quail quartz raven reef ridge
river robin sage seal sparrow spruce stone sunrise swan tern thistle tulip valley walnut
willow wren`)
)
