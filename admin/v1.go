package admin

import (
	"net/http"

	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
)

func (a *API) newV1() http.Handler { return http.NotFoundHandler() }
