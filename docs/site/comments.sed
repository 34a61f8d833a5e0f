# Plain comments as Doxygen takes them: those above a declaration, and those behind a member.
s#^( *)// ?#\1/// #
s#([;,{]) +// #\1 ///< #
/\/\/\//s#<([A-Za-z_/.]+)>#\\<\1\\>#g
