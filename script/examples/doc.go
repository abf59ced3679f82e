// Package examples holds scripted tools that are useful by themselves, and show how
// one is written that can be stopped well.
//
//	search_sources      asks several public sources at once; what has answered is
//	                    handed back when somebody stops the search
//	scan_project        looks through a folder for what should not stay: marks of
//	                    work to do, conflicts, secrets, syntax errors
//	replace_in_project  changes a text in many files, after a person has seen what
//	                    would change and agreed; a Stop leaves whole files
//
// The last two are for the editor only: they work on the folder that the
// configuration grants, and load only where it grants one. A small project to try
// them on comes with them.
//
// The package is data: it knows neither the host nor the engine.
package examples
