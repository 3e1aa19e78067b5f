# What KEDA's scaler imports, and what it is given instead.
s#"golang.org/x/oauth2"#oauth2 "keda-trial/oauth"#
s#"golang.org/x/oauth2/clientcredentials"#clientcredentials "keda-trial/oauth"#
s#"github.com/go-logr/logr"#logr "keda-trial/around"#
s#v2 "k8s.io/api/autoscaling/v2"#v2 "keda-trial/around"#
s#"k8s.io/metrics/pkg/apis/external_metrics"#external_metrics "keda-trial/around"#
s#kedautil "github.com/kedacore/keda/v2/pkg/util"#kedautil "keda-trial/around"#
s#"github.com/kedacore/keda/v2/.*/\([a-z0-9]*\)"#\1 "keda-trial/around"#
