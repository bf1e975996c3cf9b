import { useEffect, useRef, type RefObject } from 'react';
import { LanguageDescription, syntaxHighlighting } from '@codemirror/language';
import { languages } from '@codemirror/language-data';
import { Compartment, EditorState } from '@codemirror/state';
import { EditorView } from '@codemirror/view';
import { classHighlighter } from '@lezer/highlight';
import { basicSetup } from 'codemirror';
import { useThemeMode } from '../../../app/theme';
import { lineSeparatorOf } from './kinds';

interface TextEditorProps {
  name: string;
  text: string;
  isReadOnly: boolean;
  /** Set to the editor, from which the caller reads the text when the user saves. */
  editorRef: RefObject<EditorView | null>;
  onEdit: () => void;
}

/** Text editor with syntax highlighting. It is recreated if `text` or `name` changes. */
export function TextEditor({ name, text, isReadOnly, editorRef, onEdit }: TextEditorProps) {
  const parent = useRef<HTMLDivElement>(null);
  const { isDark } = useThemeMode();
  const theme = useRef(new Compartment());
  const access = useRef(new Compartment());
  useEffect(() => {
    if (!parent.current) {
      return;
    }
    const language = new Compartment();
    const view = new EditorView({
      parent: parent.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          basicSetup,
          language.of([]),
          theme.current.of([]),
          syntaxHighlighting(classHighlighter),
          EditorState.lineSeparator.of(lineSeparatorOf(text)),
          access.current.of([]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ 'aria-label': name, tabindex: '0' }),
          EditorView.updateListener.of(update => {
            if (update.docChanged) {
              onEdit();
            }
          })
        ]
      })
    });
    editorRef.current = view;
    let isClosed = false;
    void LanguageDescription.matchFilename(languages, name)
      ?.load()
      .then(support => {
        if (!isClosed) {
          view.dispatch({ effects: language.reconfigure(support) });
        }
      });
    return () => {
      isClosed = true;
      editorRef.current = null;
      view.destroy();
    };
  }, [name, text, editorRef, onEdit]);
  // Do not create a new editor, because it would lose changes of the text that are not saved.
  useEffect(() => {
    const extensions = [EditorState.readOnly.of(isReadOnly), EditorView.editable.of(!isReadOnly)];
    editorRef.current?.dispatch({ effects: access.current.reconfigure(extensions) });
  }, [isReadOnly, editorRef, name, text]);
  useEffect(() => {
    const style = EditorView.theme({}, { dark: isDark });
    editorRef.current?.dispatch({ effects: theme.current.reconfigure(style) });
  }, [isDark, editorRef, name, text]);
  return <div ref={parent} className="bai-editor" />;
}
