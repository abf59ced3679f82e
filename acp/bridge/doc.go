// Package bridge stands between an editor and its agent.
package bridge
