"""How many more of a request could be placed one after another, with the stages of the search.

filters, anchors -> parts: slots that do not influence each other -> each counted by itself -> hosts -> sums
"""
